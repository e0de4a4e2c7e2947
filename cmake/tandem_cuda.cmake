# CUDA is used where nvcc is found (on the PATH, or under /usr/local/cuda) and left out, without a trace, where it is not.
include(CheckLanguage)
if(NOT DEFINED CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX} AND EXISTS /usr/local/cuda/bin/nvcc)
  set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
endif()
check_language(CUDA)
if(CMAKE_CUDA_COMPILER)
  # By default Hopper with its own instructions, and code from which the driver compiles for any other GPU from compute
  # capability 8.0 on when the program starts there for the first time. CUDAARCHS="80;89" or -DCMAKE_CUDA_ARCHITECTURES
  # compile for others at once.
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    if(DEFINED ENV{CUDAARCHS})
      set(CMAKE_CUDA_ARCHITECTURES $ENV{CUDAARCHS})
    else()
      set(CMAKE_CUDA_ARCHITECTURES 90a-real 80-virtual)
    endif()
  endif()
  enable_language(CUDA)
  # CMake 3.25 does not know that nvcc 13 has it.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA_STANDARD 20)
  find_package(CUDAToolkit REQUIRED)
  set(TANDEM_CUDA ON)
  message(STATUS "CUDA ${CMAKE_CUDA_COMPILER_VERSION}, architectures ${CMAKE_CUDA_ARCHITECTURES}")
else()
  set(TANDEM_CUDA OFF)
  message(STATUS "CUDA was not found: tandem will compute on CPUs only")
endif()
