// Whether there is a GPU to compute on. Built with CUDA: backend/cuda/cuda_backend.cc; without: backend/no_cuda.cc.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace tandem::backend {

// Empty if a GPU can be used; otherwise the reason, one line without a full stop.
std::string why_no_cuda();

std::vector<int> usable_gpus();           // their device numbers
std::vector<std::string> gpu_problems();  // why each of the others cannot be used, worded as in why_no_cuda()
inline int gpu_count() { return static_cast<int>(usable_gpus().size()); }

std::string gpu_bus_id(int device);  // its PCI bus id: "0000:18:00.0"

// CUDA has a current GPU for each thread; -1 if there is none. A backend's GPU is that of the thread that made it;
// another thread must select it before it uses the backend.
int gpu_of_this_thread();
void use_gpu(int device);

// The GPU with this number. Fails if it is missing or too old.
std::unique_ptr<Backend> make_cuda_backend(int device);

}  // namespace tandem::backend
