#pragma once

#include <string>

namespace emulated {

struct Ptx {
  int architecture = 0;  // 80 or 90
  std::string text;
};

// The first PTX for compute capability 8.0 or 9.0 in what nvcc has put into the program and registers when it starts:
// the very text that the driver of a GPU compiles. Fails if there is none.
Ptx ptx_of(const void* registered);

}  // namespace emulated
