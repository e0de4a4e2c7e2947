// Whether there is a GPU to compute on. Built with CUDA: backend/cuda/cuda_backend.cc; without: backend/no_cuda.cc.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace tandem::backend {

// Empty where a GPU can be used; otherwise the reason, one sentence without its full stop.
std::string why_no_cuda();

std::vector<int> usable_gpus();           // their numbers
std::vector<std::string> gpu_problems();  // of those that cannot be used, as why_no_cuda() says it
inline int gpu_count() { return static_cast<int>(usable_gpus().size()); }

std::string gpu_bus_id(int device);  // where it is plugged in: "0000:18:00.0"

// CUDA has a current GPU for each thread. A backend's GPU is that of the thread that made it; another thread must
// choose it before it uses the backend. -1: there is none.
int gpu_of_this_thread();
void use_gpu(int device);

// The GPU with this number. Fails with one sentence where it is missing or too old.
std::unique_ptr<Backend> make_cuda_backend(int device);

}  // namespace tandem::backend
