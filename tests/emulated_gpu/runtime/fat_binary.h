#pragma once

#include <string>

namespace tandem::emulated {

// The PTX for compute capability 8.0 in what nvcc has put into the program and registers when it starts: the very text
// that the driver of a GPU compiles. Fails if there is none.
std::string ptx_of(const void* registered);

}  // namespace tandem::emulated
