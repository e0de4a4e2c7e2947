# The op tests of tests/cuda with a GPU that is not there: a CUDA runtime that interprets the program's PTX,
# so that every kernel is computed, and every access to memory checked. Its functions go before those of CUDA's own
# archive. Two programs: with PTX of compute capability 8.0, as all GPUs but Hopper get it from the driver, and with that
# of 9.0a, Hopper's own way, which is compiled for the tests alone.
file(GLOB emulator_sources CONFIGURE_DEPENDS
  ${CMAKE_SOURCE_DIR}/tools/emulated_gpu/*.cc ${CMAKE_SOURCE_DIR}/tools/emulated_gpu/ptx/*.cc
  ${CMAKE_SOURCE_DIR}/tools/emulated_gpu/runtime/*.cc)
add_library(emulated_gpu OBJECT ${emulator_sources})
target_include_directories(emulated_gpu PRIVATE ${CMAKE_SOURCE_DIR}/tools)
target_link_libraries(emulated_gpu PRIVATE tandem_core CUDA::cublasLt GTest::gtest ${DNNL_LIBRARY} tandem_flags)
# At full speed in every build: sanitizers look at what is tested, not at the tool.
target_compile_options(emulated_gpu PRIVATE -O3 -fno-sanitize=all -fno-math-errno -fno-trapping-math)

# Of long lists of cases every fifth is taken, all with TANDEM_SOAK=1. Whole runs take 3 s a step, and little memory makes
# the product small by which they measure the GPU's speed.
function(tandem_emulated_test name prefix)
  add_executable(${name} $<TARGET_OBJECTS:emulated_gpu> $<TARGET_OBJECTS:test_cuda> ${ARGN})
  target_link_libraries(${name} PRIVATE $<TARGET_PROPERTY:test_cuda,LINK_LIBRARIES> Boost::iostreams)
  target_link_options(${name} PRIVATE -Wl,--as-needed,--allow-multiple-definition)
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
