"""The layers and functions of PyTorch that an FX file may name. All are looked up by these names alone."""

from __future__ import annotations

from service.compiler.readers.operator_names import ALLOWED, ATEN_NAMES

_LAYERS = """
AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d AlphaDropout
AvgPool1d AvgPool2d AvgPool3d BCELoss BCEWithLogitsLoss BatchNorm1d BatchNorm2d BatchNorm3d Bilinear CELU CTCLoss
ChannelShuffle CircularPad1d CircularPad2d CircularPad3d ConstantPad1d ConstantPad2d ConstantPad3d Conv1d Conv2d Conv3d
ConvTranspose1d ConvTranspose2d ConvTranspose3d CosineEmbeddingLoss CosineSimilarity CrossEntropyLoss Dropout Dropout1d
Dropout2d Dropout3d ELU Embedding EmbeddingBag FeatureAlphaDropout Flatten Fold GELU GLU GRU GRUCell GaussianNLLLoss
GroupNorm Hardshrink Hardsigmoid Hardswish Hardtanh HingeEmbeddingLoss HuberLoss Identity InstanceNorm1d InstanceNorm2d
InstanceNorm3d KLDivLoss L1Loss LPPool1d LPPool2d LPPool3d LSTM LSTMCell LayerNorm LeakyReLU Linear LocalResponseNorm
LogSigmoid LogSoftmax MSELoss MarginRankingLoss MaxPool1d MaxPool2d MaxPool3d MaxUnpool1d MaxUnpool2d MaxUnpool3d Mish
Module ModuleDict ModuleList MultiLabelMarginLoss MultiLabelSoftMarginLoss MultiMarginLoss MultiheadAttention NLLLoss
NLLLoss2d NonDynamicallyQuantizableLinear PReLU PairwiseDistance ParameterDict ParameterList PixelShuffle PixelUnshuffle
PoissonNLLLoss RMSNorm RNN RNNCell RReLU ReLU ReLU6 ReflectionPad1d ReflectionPad2d ReflectionPad3d ReplicationPad1d
ReplicationPad2d ReplicationPad3d SELU Sequential SiLU Sigmoid SmoothL1Loss SoftMarginLoss Softmax Softmax2d Softmin
Softplus Softshrink Softsign SyncBatchNorm Tanh Tanhshrink Threshold Transformer TransformerDecoder
TransformerDecoderLayer TransformerEncoder TransformerEncoderLayer TripletMarginLoss Unflatten Unfold Upsample
UpsamplingBilinear2d UpsamplingNearest2d ZeroPad1d ZeroPad2d ZeroPad3d
"""
_FUNCTIONAL = """
adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool1d_with_indices
adaptive_max_pool2d adaptive_max_pool2d_with_indices adaptive_max_pool3d adaptive_max_pool3d_with_indices affine_grid
alpha_dropout avg_pool1d avg_pool2d avg_pool3d batch_norm bilinear binary_cross_entropy binary_cross_entropy_with_logits
celu celu_ channel_shuffle conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d
cosine_embedding_loss cosine_similarity cross_entropy ctc_loss dropout dropout1d dropout2d dropout3d elu elu_ embedding
embedding_bag feature_alpha_dropout fold gaussian_nll_loss gelu glu grid_sample group_norm gumbel_softmax hardshrink
hardsigmoid hardswish hardtanh hardtanh_ hinge_embedding_loss huber_loss instance_norm interpolate kl_div l1_loss
layer_norm leaky_relu leaky_relu_ linear local_response_norm log_softmax logsigmoid lp_pool1d lp_pool2d lp_pool3d
margin_ranking_loss max_pool1d max_pool1d_with_indices max_pool2d max_pool2d_with_indices max_pool3d
max_pool3d_with_indices max_unpool1d max_unpool2d max_unpool3d mish mse_loss multi_head_attention_forward
multi_margin_loss multilabel_margin_loss multilabel_soft_margin_loss native_channel_shuffle nll_loss normalize one_hot
pad pairwise_distance pdist pixel_shuffle pixel_unshuffle poisson_nll_loss prelu relu relu6 relu_ rms_norm rrelu
scaled_dot_product_attention selu selu_ sigmoid silu smooth_l1_loss soft_margin_loss softmax softmin softplus softshrink
softsign tanh tanhshrink threshold threshold_ triplet_margin_loss triplet_margin_with_distance_loss unfold upsample
upsample_bilinear upsample_nearest
"""
_OPERATOR = """
add sub mul truediv floordiv mod pow matmul neg pos invert and_ or_ xor lshift rshift eq ne lt le gt ge getitem abs not_
iadd isub imul itruediv ifloordiv imod ipow imatmul iand ior ixor ilshift irshift is_ is_not contains concat
"""
_MATH = "floor ceil sqrt trunc log exp prod pi inf nan e"
_BUILTIN = "getattr len int float bool min max abs sum tuple list slice round range"
_METHODS = """
bfloat16 bool byte char double float half int long short cpu size dim ndimension numel nelement element_size new_tensor
unflatten view_as type is_contiguous broadcast_to requires_grad_ shape stride to item contiguous
"""
_PROPERTIES = "shape dtype device T mT H mH ndim real imag data requires_grad is_cuda layout itemsize nbytes"
_DTYPES = """
float16 float32 float64 bfloat16 half float double int8 int16 int32 int64 uint8 uint16 uint32 uint64 short int long bool
complex64 complex128 cfloat cdouble strided contiguous_format channels_last channels_last_3d preserve_format
"""
_TORCH = """
tensor as_tensor _assert broadcast_shapes promote_types result_type is_tensor functional.atleast_1d
functional.atleast_2d functional.atleast_3d functional.block_diag functional.broadcast_shapes
functional.broadcast_tensors functional.cartesian_prod functional.cdist functional.chain_matmul functional.einsum
functional.istft functional.meshgrid functional.norm functional.split functional.stft functional.tensordot
functional.unique_consecutive
"""

LAYERS = frozenset(_LAYERS.split())
METHODS = frozenset(_METHODS.split()) | ATEN_NAMES
PROPERTIES = frozenset(_PROPERTIES.split())
CONSTANTS = frozenset(f"torch.{name}" for name in _DTYPES.split()) | {"math.inf", "math.nan", "math.pi", "math.e"}
FUNCTIONALS = frozenset(f"torch.nn.functional.{name}" for name in _FUNCTIONAL.split())
FUNCTIONS = frozenset(
    {f"operator.{name}" for name in _OPERATOR.split()}
    | {f"math.{name}" for name in _MATH.split()}
    | {f"builtins.{name}" for name in _BUILTIN.split()}
    | {f"torch.{name}" for name in ATEN_NAMES}
    | {f"torch._C._nn.{name}" for name in ATEN_NAMES}
    | {f"torch._C.{part}.{name}" for part in ("_special", "_linalg", "_fft") for name in ATEN_NAMES}
    | {f"torch.special.{name.removeprefix('special_')}" for name in ATEN_NAMES if name.startswith("special_")}
    | {f"torch.linalg.{name.removeprefix('linalg_')}" for name in ATEN_NAMES if name.startswith("linalg_")}
    | {f"torch.fft.{name}" for name in ATEN_NAMES if name.startswith("fft_")}
    | {f"torch.{name}" for name in _TORCH.split()}
    | {"torch.device", "torch.Size", "torch.sym_int", "torch.sym_float", "torch.sym_max", "torch.sym_min"}
    | {name for name in ALLOWED if name.startswith("torch.ops.aten.")}
    | FUNCTIONALS
)
