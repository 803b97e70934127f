// The library in the process of its server: what is left when all of relaxd's own work is left out.
// One thread, epoll, OIP binary bodies: the JSON part is skipped by its length and not looked at, the answer's is fixed.
// g++ -O2 -std=c++17 -I<tvm_ffi>/include -o inprocess serve_inprocess.cpp -L<tvm_ffi>/lib -ltvm_ffi -ldl
// ./inprocess PORT MODEL.so libtvm_runtime.so INPUT_SHAPE(1,784)
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/tcp.h>
#include <strings.h>
#include <sys/epoll.h>
#include <tvm/ffi/tvm_ffi.h>
#include <tvm/ffi/extra/module.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

using namespace tvm::ffi;

namespace {

constexpr int kMaxClients = 1024;
constexpr size_t kBuffer = 4 << 20;

// Memory of the process, aligned as the kernels want it.
struct AlignedAllocator {
  void AllocData(DLTensor* tensor) {
    size_t bytes = (GetDataSize(*tensor) + 63) / 64 * 64;
    tensor->data = aligned_alloc(64, bytes ? bytes : 64);
  }
  void FreeData(DLTensor* tensor) { free(tensor->data); }
};

size_t number_of(const char* head, const char* end, const char* name) {
  size_t length = strlen(name);
  for (const char* line = head; line && line < end;) {
    if (!strncasecmp(line, name, length)) return strtoul(line + length, nullptr, 10);
    line = static_cast<const char*>(memmem(line, end - line + 2, "\r\n", 2));
    if (line) line += 2;
  }
  return 0;
}

Tensor first_of(const Any& result) {
  if (auto tensor = result.as<Tensor>()) return *tensor;
  return result.cast<Array<Tensor>>()[0];
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 5) return 2;
  if (!dlopen(arguments[3], RTLD_NOW | RTLD_GLOBAL)) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  std::vector<int64_t> shape;
  for (char* part = strtok(arguments[4], ","); part; part = strtok(nullptr, ",")) shape.push_back(atoll(part));
  Module library = Module::LoadFromFile(arguments[2]);
  Module machine = library->GetFunction("vm_load_executable").value()().cast<Module>();
  // The CPU with the pooled allocator, as tvm.relax.VirtualMachine asks for it.
  machine->GetFunction("vm_initialization").value()(static_cast<int>(kDLCPU), 0, 2);
  Function entry = machine->GetFunction("main").value();
  Tensor input = Tensor::FromNDAlloc(AlignedAllocator(), Shape(shape), DLDataType{kDLFloat, 32, 1}, DLDevice{kDLCPU, 0});
  const size_t input_bytes = GetDataSize(input);

  std::vector<char*> buffers(kMaxClients);
  std::vector<size_t> filled(kMaxClients);
  std::string json = "{\"model_name\":\"m\",\"model_version\":\"1\",\"outputs\":[{\"name\":\"output_0\",\"datatype\":\"FP32\","
                     "\"shape\":[1,10],\"parameters\":{\"binary_data_size\":40}}]}";
  int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(atoi(arguments[1]));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) || listen(listener, 512)) return 1;
  int poll = epoll_create1(0);
  epoll_event event{}, events[256];
  event.events = EPOLLIN;
  event.data.fd = listener;
  epoll_ctl(poll, EPOLL_CTL_ADD, listener, &event);
  for (std::string answer;;) {
    int ready = epoll_wait(poll, events, 256, -1);
    for (int i = 0; i < ready; i++) {
      int client = events[i].data.fd;
      if (client == listener) {
        client = accept(listener, nullptr, nullptr);
        if (client < 0) continue;
        if (client >= kMaxClients) { close(client); continue; }
        setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (!buffers[client]) buffers[client] = static_cast<char*>(malloc(kBuffer));
        filled[client] = 0;
        event.data.fd = client;
        epoll_ctl(poll, EPOLL_CTL_ADD, client, &event);
        continue;
      }
      ssize_t got = read(client, buffers[client] + filled[client], kBuffer - filled[client]);
      if (got <= 0) { close(client); continue; }
      filled[client] += got;
      for (;;) {
        char* data = buffers[client];
        char* end = static_cast<char*>(memmem(data, filled[client], "\r\n\r\n", 4));
        if (!end) break;
        size_t length = number_of(data, end, "Content-Length:");
        size_t whole = end + 4 - data + length;
        if (whole > filled[client]) break;
        size_t start = number_of(data, end, "Inference-Header-Content-Length:");
        if (length - start != input_bytes) { close(client); break; }
        memcpy(input.data_ptr(), end + 4 + start, input_bytes);
        Tensor output = first_of(entry(input));
        size_t bytes = GetDataSize(output);
        char head[256];
        snprintf(head, sizeof head,
                 "HTTP/1.1 200 OK\r\ncontent-type: application/octet-stream\r\ninference-header-content-length: %zu\r\n"
                 "content-length: %zu\r\n\r\n", json.size(), json.size() + bytes);
        answer.assign(head);
        answer += json;
        answer.append(static_cast<const char*>(output.data_ptr()) + output.byte_offset(), bytes);
        if (write(client, answer.data(), answer.size()) < 0) break;
        filled[client] -= whole;
        memmove(data, data + whole, filled[client]);
      }
    }
  }
}
