#include "backend/cuda_device.h"

namespace tandem::backend {

std::string why_no_cuda() { return "this tandem was built without CUDA"; }

std::vector<int> usable_gpus() { return {}; }

std::vector<std::string> gpu_problems() { return {}; }

std::string gpu_bus_id(int /*device*/) { return {}; }

int gpu_of_this_thread() { return -1; }

void use_gpu(int /*device*/) {}

std::unique_ptr<Backend> make_cuda_backend(int /*device*/) { fail("{}", why_no_cuda()); }

}  // namespace tandem::backend
