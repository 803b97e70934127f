"""The operators of PyTorch that a file may name: pure arithmetic on tensors and sizes, whatever their arguments.

Left out is everything that opens files, changes storages, reads without checking bounds, belongs to another device,
or is there for PyTorch's own tests. Whether TVM can convert an operator is another question: see
`service/compiler/importers/operators.py`. A name stands for its overload ``default``, or for those after the colon.
"""

from __future__ import annotations

_ATEN = """
__and__:Scalar,Tensor __iand__:Scalar,Tensor __ilshift__:Scalar,Tensor __ior__:Scalar,Tensor __irshift__:Scalar,Tensor
__ixor__:Scalar,Tensor __lshift__:Scalar,Tensor __or__:Scalar,Tensor __rshift__:Scalar,Tensor __xor__:Scalar,Tensor
_adaptive_avg_pool2d _adaptive_avg_pool3d _add_relu:Scalar,Tensor _add_relu_:Scalar,Tensor _aminmax:default,dim
_assert_async:default,msg _assert_scalar _assert_tensor_metadata _batch_norm_with_update
_batch_norm_with_update_functional _cdist_forward _conj _conj_copy _conj_physical _conv_depthwise2d
_convolution:default,deprecated _convolution_mode _embedding_bag _embedding_bag_forward_only _euclidean_dist _fft_c2c
_fft_c2r _fft_r2c _functional_assert_scalar _fused_rms_norm _is_all_true _is_any_true _is_zerotensor _linalg_det
_linalg_eigh _linalg_eigvals _linalg_slogdet _linalg_solve_ex _linalg_svd _local_scalar_dense _log_softmax _logcumsumexp
_lu_with_info _masked_scale _masked_softmax _native_batch_norm_legit:default,no_stats
_native_batch_norm_legit_functional _native_batch_norm_legit_no_training _native_multi_head_attention _neg_view
_neg_view_copy _pad_circular _pad_packed_sequence _pdist_forward _prelu_kernel _reshape_alias_copy _reshape_copy
_safe_softmax _scaled_dot_product_attention_math _scaled_dot_product_flash_attention_for_cpu _softmax _stack _to_copy
_transformer_encoder_layer_fwd _trilinear _unique _unique2 _unsafe_index:Tensor _unsafe_index_put _unsafe_masked_index
_unsafe_masked_index_put_accumulate _unsafe_view _upsample_bicubic2d_aa:default,vec _upsample_bilinear2d_aa:default,vec
_upsample_lanczos2d_aa:default,vec _upsample_nearest_exact1d:default,vec _upsample_nearest_exact2d:default,vec
_upsample_nearest_exact3d:default,vec _weight_norm _weight_norm_interface abs abs_ absolute absolute_ acos acos_ acosh
acosh_ adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d
adaptive_max_pool3d add:Scalar,Tensor add_:Scalar,Tensor addbmm addbmm_ addcdiv addcdiv_ addcmul addcmul_
addmm:default,dtype addmm_ addmv addmv_ addr addr_ adjoint affine_grid_generator alias alias_copy all:default,dim,dims
allclose alpha_dropout alpha_dropout_ amax amin aminmax angle any:default,dim,dims arange:default,start,start_step
arccos arccos_ arccosh arccosh_ arcsin arcsin_ arcsinh arcsinh_ arctan arctan2 arctan2_ arctan_ arctanh arctanh_ argmax
argmin argsort:default,stable argwhere as_strided as_strided_ as_strided_copy as_strided_scatter asin asin_ asinh asinh_
atan atan2 atan2_ atan_ atanh atanh_ atleast_1d:Sequence,default atleast_2d:Sequence,default atleast_3d:Sequence,default
avg_pool1d avg_pool2d avg_pool3d baddbmm:default,dtype baddbmm_ bartlett_window:default,periodic batch_norm
bernoulli:Tensor,default,p bernoulli_:Tensor,float bilinear binary_cross_entropy binary_cross_entropy_with_logits
bincount binomial bitwise_and:Scalar,Scalar_Tensor,Tensor bitwise_and_:Scalar,Tensor
bitwise_left_shift:Scalar_Tensor,Tensor,Tensor_Scalar bitwise_left_shift_:Tensor,Tensor_Scalar bitwise_not bitwise_not_
bitwise_or:Scalar,Scalar_Tensor,Tensor bitwise_or_:Scalar,Tensor bitwise_right_shift:Scalar_Tensor,Tensor,Tensor_Scalar
bitwise_right_shift_:Tensor,Tensor_Scalar bitwise_xor:Scalar,Scalar_Tensor,Tensor bitwise_xor_:Scalar,Tensor
blackman_window:default,periodic block_diag bmm:default,dtype broadcast_tensors broadcast_to bucketize:Scalar,Tensor
cartesian_prod cat cauchy cauchy_ cdist ceil ceil_ celu celu_ chain_matmul chalf channel_shuffle cholesky
cholesky_inverse cholesky_solve chunk clamp:Tensor,default clamp_:Tensor,default clamp_max:Tensor,default
clamp_max_:Tensor,default clamp_min:Tensor,default clamp_min_:Tensor,default clip:Tensor,default clip_:Tensor,default
clone col2im column_stack combinations complex concat concatenate conj conj_physical conj_physical_ constant_pad_nd
contiguous conv1d:default,padding conv2d:default,padding conv3d:default,padding conv_depthwise3d conv_tbc
conv_transpose1d conv_transpose2d:input conv_transpose3d:input convolution copy copy_ copysign:Scalar,Tensor
copysign_:Scalar,Tensor corrcoef cos cos_ cosh cosh_ cosine_embedding_loss cosine_similarity
count_nonzero:default,dim_IntList cov cross cross_entropy_loss ctc_loss:IntList,Tensor cummax cummin cumprod cumprod_
cumsum cumsum_ cumulative_trapezoid:dx,x deg2rad deg2rad_ det detach detach_ detach_copy diag diag_embed diagflat
diagonal diagonal_copy diagonal_scatter diff digamma digamma_ dim dist div:Scalar,Scalar_mode,Tensor,Tensor_mode
div_:Scalar,Scalar_mode,Tensor,Tensor_mode divide:Scalar,Scalar_mode,Tensor,Tensor_mode
divide_:Scalar,Scalar_mode,Tensor,Tensor_mode dot dropout dropout_ dsplit:array,int dstack einsum elu elu_ embedding
embedding_bag:default,padding_idx embedding_renorm embedding_renorm_ empty:memory_format empty_like empty_permuted
empty_strided eq:Scalar,Tensor eq_:Scalar,Tensor equal erf erf_ erfc erfc_ erfinv erfinv_ exp exp2 exp2_ exp_ expand
expand_as expand_copy expm1 expm1_ exponential exponential_ eye:default,m fake_quantize_per_channel_affine
fake_quantize_per_tensor_affine:default,tensor_qparams feature_alpha_dropout feature_alpha_dropout_ feature_dropout
feature_dropout_ fft_fft fft_fft2 fft_fftfreq fft_fftn fft_fftshift fft_hfft fft_hfft2 fft_hfftn fft_ifft fft_ifft2
fft_ifftn fft_ifftshift fft_ihfft fft_ihfft2 fft_ihfftn fft_irfft fft_irfft2 fft_irfftn fft_rfft fft_rfft2 fft_rfftfreq
fft_rfftn fill:Scalar,Tensor fill_:Scalar,Tensor fill_diagonal_ fix fix_ flatten:using_ints flip fliplr flipud
float_power:Scalar,Tensor_Scalar,Tensor_Tensor float_power_:Scalar,Tensor floor floor_ floor_divide:Scalar,default
floor_divide_:Scalar,Tensor fmax fmin fmod:Scalar,Tensor fmod_:Scalar,Tensor frac frac_ fractional_max_pool2d
fractional_max_pool3d frexp:Tensor frobenius_norm:dim full full_like gather gcd gcd_ ge:Scalar,Tensor ge_:Scalar,Tensor
gelu gelu_ geometric geometric_ geqrf ger glu
gradient:array,scalararray,scalarint,scalarrayarray,scalarrayint,tensorarray,tensorarrayint greater:Scalar,Tensor
greater_:Scalar,Tensor greater_equal:Scalar,Tensor greater_equal_:Scalar,Tensor grid_sampler grid_sampler_2d
grid_sampler_3d group_norm gru:data,input gru_cell gt:Scalar,Tensor gt_:Scalar,Tensor
hamming_window:default,periodic,periodic_alpha,periodic_alpha_beta hann_window:default,periodic hardshrink hardsigmoid
hardsigmoid_ hardswish hardswish_ hardtanh hardtanh_ heaviside heaviside_ hinge_embedding_loss histc
histogram:bin_ct,bins_tensor histogramdd:TensorList_bins,default,int_bins hsplit:array,int hstack huber_loss hypot
hypot_ i0 i0_ igamma igamma_ igammac igammac_ im2col imag index:Tensor index_add index_add_ index_copy index_copy_
index_fill:int_Scalar,int_Tensor index_fill_:int_Scalar,int_Tensor index_put index_put_ index_reduce index_reduce_
index_select indices inner instance_norm inverse is_complex is_floating_point is_nonzero is_same_size is_signed isclose
isfinite isin:Scalar_Tensor,Tensor_Scalar,Tensor_Tensor isinf isnan isneginf isposinf isreal istft item
kaiser_window:beta,default,periodic kl_div kron kthvalue l1_loss layer_norm lcm lcm_ ldexp:Tensor ldexp_
le:Scalar,Tensor le_:Scalar,Tensor leaky_relu leaky_relu_ lerp:Scalar,Tensor lerp_:Scalar,Tensor less:Scalar,Tensor
less_:Scalar,Tensor less_equal:Scalar,Tensor less_equal_:Scalar,Tensor lgamma lgamma_ lift_fresh lift_fresh_copy
linalg_cholesky linalg_cond:default,p_str linalg_cross linalg_det linalg_diagonal linalg_eig linalg_eigh linalg_eigvals
linalg_eigvalsh linalg_householder_product linalg_inv linalg_inv_ex linalg_ldl_factor linalg_ldl_factor_ex
linalg_ldl_solve linalg_lstsq linalg_lu linalg_lu_factor linalg_matmul linalg_matrix_exp
linalg_matrix_norm:default,str_ord linalg_matrix_power
linalg_matrix_rank:atol_rtol_float,atol_rtol_tensor,default,tol_tensor linalg_multi_dot linalg_norm:default,ord_str
linalg_pinv:atol_rtol_float,default,rcond_tensor linalg_qr linalg_slogdet linalg_solve linalg_solve_ex
linalg_solve_triangular linalg_svd linalg_svdvals linalg_tensorinv linalg_tensorsolve linalg_vander linalg_vecdot
linalg_vector_norm linear linspace:Scalar_Tensor,Tensor_Scalar,Tensor_Tensor,default log log10 log10_ log1p log1p_ log2
log2_ log_ log_normal log_normal_ log_sigmoid log_sigmoid_forward log_softmax:int logaddexp logaddexp2 logcumsumexp
logdet logical_and logical_and_ logical_not logical_not_ logical_or logical_or_ logical_xor logical_xor_ logit logit_
logspace:Scalar_Tensor,Tensor_Scalar,Tensor_Tensor,default logsumexp lstm:data,input lstm_cell lt:Scalar,Tensor
lt_:Scalar,Tensor lu_solve lu_unpack mH mT margin_ranking_loss masked_fill:Scalar,Tensor masked_fill_:Scalar,Tensor
masked_scatter masked_scatter_ masked_select matmul matrix_H matrix_exp matrix_power max:default,dim,other max_pool1d
max_pool1d_with_indices max_pool2d max_pool2d_with_indices max_pool3d max_pool3d_with_indices max_unpool2d max_unpool3d
maximum mean:default,dim median:default,dim meshgrid:default,indexing min:default,dim,other minimum mish mish_
mm:default,dtype mode moveaxis:int,intlist movedim:int,intlist mse_loss msort mul:Scalar,Tensor mul_:Scalar,Tensor
multi_margin_loss multilabel_margin_loss multilabel_margin_loss_forward multinomial multiply:Scalar,Tensor
multiply_:Scalar,Tensor mv mvlgamma mvlgamma_ nan_to_num nan_to_num_ nanmean nanmedian:default,dim
nanquantile:default,scalar nansum narrow:Tensor,default narrow_copy native_batch_norm native_channel_shuffle
native_dropout native_group_norm native_layer_norm native_norm:ScalarOpt_dim_dtype,default ne:Scalar,Tensor
ne_:Scalar,Tensor neg neg_ negative negative_ new_empty new_empty_strided new_full new_ones new_zeros nextafter
nextafter_ nll_loss nll_loss2d nll_loss2d_forward nll_loss_forward nll_loss_nd nonzero nonzero_numpy nonzero_static
norm:Scalar,ScalarOpt_dim,ScalarOpt_dim_dtype,ScalarOpt_dtype norm_except_dim
normal:Tensor_Tensor,Tensor_float,float_Tensor,float_float normal_ normal_functional not_equal:Scalar,Tensor
not_equal_:Scalar,Tensor nuclear_norm:default,dim numpy_T numel one_hot ones ones_like orgqr ormqr outer pad
pad_sequence pairwise_distance pdist permute permute_copy pinverse pixel_shuffle pixel_unshuffle poisson
poisson_nll_loss polar polygamma polygamma_ positive pow:Scalar,Tensor_Scalar,Tensor_Tensor pow_:Scalar,Tensor prelu
prod:default,dim_int put put_ qr quantile:default,scalar rad2deg rad2deg_ rand:default,generator
rand_like:default,generator randint:default,generator,low,low_generator
randint_like:Tensor,Tensor_generator,default,generator,low_dtype,low_generator_dtype randn:default,generator
randn_like:default,generator random:default,from,to random_:default,from,to randperm:default,generator
range:default,step ravel real reciprocal reciprocal_ reflection_pad1d reflection_pad2d reflection_pad3d relu relu6
relu6_ relu_ remainder:Scalar,Scalar_Tensor,Tensor remainder_:Scalar,Tensor renorm renorm_ repeat
repeat_interleave:Tensor,self_Tensor,self_int replication_pad1d replication_pad2d replication_pad3d reshape reshape_as
resolve_conj resolve_neg rms_norm rnn_relu:data,input rnn_relu_cell rnn_tanh:data,input rnn_tanh_cell roll rot90
round:decimals,default round_:decimals,default row_stack rrelu rrelu_ rrelu_with_noise rrelu_with_noise_
rrelu_with_noise_functional rsqrt rsqrt_ rsub:Scalar,Tensor scalar_tensor scaled_dot_product_attention
scatter:reduce,src,value,value_reduce scatter_:reduce,src,value,value_reduce scatter_add scatter_add_ scatter_reduce:two
scatter_reduce_:two searchsorted:Scalar,Tensor select:int select_copy:int select_scatter selu selu_ sgn sgn_ sigmoid
sigmoid_ sign sign_ signbit silu silu_ sin sin_ sinc sinc_ sinh sinh_ size:int slice:Tensor slice_copy:Tensor
slice_scatter slogdet smooth_l1_loss soft_margin_loss softmax:int softplus softshrink sort:default,stable
special_airy_ai special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1
special_chebyshev_polynomial_t:default,n_scalar,x_scalar special_chebyshev_polynomial_u:default,n_scalar,x_scalar
special_chebyshev_polynomial_v:default,n_scalar,x_scalar special_chebyshev_polynomial_w:default,n_scalar,x_scalar
special_digamma special_entr special_erf special_erfc special_erfcx special_erfinv special_exp2 special_expit
special_expm1 special_gammainc special_gammaincc special_gammaln special_hermite_polynomial_h:default,n_scalar,x_scalar
special_hermite_polynomial_he:default,n_scalar,x_scalar special_i0 special_i0e special_i1 special_i1e
special_laguerre_polynomial_l:default,n_scalar,x_scalar special_legendre_polynomial_p:default,n_scalar,x_scalar
special_log1p special_log_ndtr special_log_softmax special_logit special_logsumexp special_modified_bessel_i0
special_modified_bessel_i1 special_modified_bessel_k0 special_modified_bessel_k1 special_multigammaln special_ndtr
special_ndtri special_polygamma special_psi special_round special_scaled_modified_bessel_k0
special_scaled_modified_bessel_k1 special_shifted_chebyshev_polynomial_t:default,n_scalar,x_scalar
special_shifted_chebyshev_polynomial_u:default,n_scalar,x_scalar
special_shifted_chebyshev_polynomial_v:default,n_scalar,x_scalar
special_shifted_chebyshev_polynomial_w:default,n_scalar,x_scalar special_sinc special_softmax
special_spherical_bessel_j0 special_xlog1py:default,other_scalar,self_scalar
special_xlogy:default,other_scalar,self_scalar special_zeta:default,other_scalar,self_scalar split:Tensor,sizes
split_copy:Tensor split_with_sizes split_with_sizes_copy sqrt sqrt_ square square_ squeeze:default,dim,dims
squeeze_:default,dim,dims squeeze_copy:default,dim,dims stack std:correction,default,dim std_mean:correction,default,dim
stft:center,default storage_offset stride:int sub:Scalar,Tensor sub_:Scalar,Tensor subtract:Scalar,Tensor
subtract_:Scalar,Tensor sum:default,dim_IntList sum_to_size svd swapaxes swapaxes_ swapdims swapdims_
sym_constrain_range sym_constrain_range_for_size sym_is_contiguous sym_numel sym_size:int sym_storage_offset
sym_stride:int t t_ t_copy take take_along_dim tan tan_ tanh tanh_
tensor_split:indices,sections,tensor_indices_or_sections tensordot threshold threshold_ tile
to:device,dtype,dtype_layout,other topk trace transpose:int transpose_ transpose_copy:int trapezoid:dx,x trapz:dx,x
triangular_solve tril tril_ tril_indices triplet_margin_loss triu triu_ triu_indices true_divide:Scalar,Tensor
true_divide_:Scalar,Tensor trunc trunc_ type_as unbind:int unbind_copy:int unflatten:int unfold unfold_copy uniform
uniform_ unique_consecutive unsafe_chunk unsafe_split:Tensor unsafe_split_with_sizes unsqueeze unsqueeze_ unsqueeze_copy
upsample_bicubic2d:default,vec upsample_bilinear2d:default,vec upsample_linear1d:default,vec
upsample_nearest1d:default,vec upsample_nearest2d:default,vec upsample_nearest3d:default,vec
upsample_trilinear3d:default,vec vander var:correction,default,dim var_mean:correction,default,dim vdot
view:default,dtype view_as view_as_complex view_as_complex_copy view_as_real view_as_real_copy view_copy:default,dtype
vsplit:array,int vstack where:Scalar,ScalarOther,ScalarSelf,default,self xlogy:Scalar_Other,Scalar_Self,Tensor
xlogy_:Scalar_Other,Tensor zero zero_ zeros zeros_like
"""

_PRIMS = """
abs acos acosh add all amax amin any as_strided asin asinh atan atan2 atanh bitwise_and bitwise_not bitwise_or
bitwise_xor broadcast_in_dim cat ceil clone collapse collapse_view conj convert_element_type copy_strided cos cosh
digamma div empty_strided eq erf exp exp2 expm1 fft_c2c fft_c2r fft_r2c fill floor fmax fmin fmod full full_like gcd ge
gt hypot imag iota isfinite le log log10 log1p log2 lt maximum minimum mul ne neg pow prod real reciprocal remainder
reshape rev round rsqrt shift_left shift_right_arithmetic sign signbit sin sinh slice slice_in_dim split_dim sqrt
squeeze sub sum svd tan tanh transpose trunc var view_of where xor_sum
"""

_HIGHER_ORDER = "cond wrap_with_set_grad_enabled wrap_with_autocast while_loop scan map_impl"

# Python's own operators and functions, as they stand for arithmetic on sizes.
_OPERATOR = "eq ne le ge lt gt neg pos mul add sub floordiv mod pow truediv and_ or_ lshift rshift"
_SIZE_FUNCTIONS = "torch.sym_not torch.sym_int torch.sym_float torch.sym_ite torch.sym_max torch.sym_min torch.sym_sqrt"
SIZE_OPERATORS = frozenset(
    [f"_operator.{name}" for name in _OPERATOR.split()] + _SIZE_FUNCTIONS.split() + ["torch._sym_sqrt", "math.trunc"]
)


def _expand(namespace: str, names: str) -> set[str]:
    expanded: set[str] = set()
    for entry in names.split():
        name, _, overloads = entry.partition(":")
        expanded.update(f"torch.ops.{namespace}.{name}.{overload}" for overload in (overloads or "default").split(","))
    return expanded


HIGHER_ORDER = frozenset(f"torch.ops.higher_order.{name}" for name in _HIGHER_ORDER.split())

# As a `.pt2` names them, such as ``torch.ops.aten.add.Tensor``.
ALLOWED = frozenset(_expand("aten", _ATEN) | _expand("prims", _PRIMS) | HIGHER_ORDER | SIZE_OPERATORS)

# Without namespace and overload, as TorchScript names them.
ATEN_NAMES = frozenset(entry.partition(":")[0] for entry in _ATEN.split())
