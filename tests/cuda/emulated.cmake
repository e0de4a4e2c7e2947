# The op tests on emulated GPUs: with PTX of compute capability 8.0, as all GPUs but Hopper get it from the driver, and with
# that of 9.0a, Hopper's own way, which is compiled for the tests alone.
add_subdirectory(${CMAKE_SOURCE_DIR}/tools/emulated_gpu ${CMAKE_BINARY_DIR}/emulated_gpu)

# Of long lists of cases every fifth is taken, all with TANDEM_SOAK=1. Whole runs take 3 s a step, and little memory makes
# the product small by which they measure the GPU's speed.
function(tandem_emulated_test name prefix)
  emulated_gpu_program(${name} OBJECTS $<TARGET_OBJECTS:test_cuda> $<TARGET_OBJECTS:op_tests> ${ARGN}
    LIBS $<TARGET_PROPERTY:test_cuda,LINK_LIBRARIES> MORE_KERNELS_THAN 100)
  gtest_discover_tests(${name} TEST_PREFIX ${prefix}. TEST_FILTER -CudaTraining.*
    TEST_LIST ${name}_ops DISCOVERY_TIMEOUT 60)
  gtest_discover_tests(${name} TEST_PREFIX ${prefix}. TEST_FILTER CudaTraining.*
    TEST_LIST ${name}_runs DISCOVERY_TIMEOUT 60
    PROPERTIES LABELS soak ENVIRONMENT EMULATED_GPU_MEMORY=600000000)
endfunction()

tandem_emulated_test(test_cuda_emulated emulated_gpu)

# The kernels once more: these objects go before the backend's archive, whose own are then not taken.
file(GLOB kernel_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/backend/cuda/*.cu)
add_library(hopper_kernels OBJECT ${kernel_sources})
set_target_properties(hopper_kernels PROPERTIES CUDA_ARCHITECTURES 90a-virtual)
target_link_libraries(hopper_kernels PRIVATE tandem_tensor CUDA::cudart_static CUDA::cublasLt)
target_compile_options(hopper_kernels PRIVATE $<TARGET_PROPERTY:tandem_backend,COMPILE_OPTIONS>)
tandem_emulated_test(test_cuda_emulated_hopper emulated_hopper $<TARGET_OBJECTS:hopper_kernels>)
