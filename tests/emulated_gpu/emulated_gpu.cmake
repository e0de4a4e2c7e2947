# The op tests of tests/cuda with a GPU that is not there: a CUDA runtime (runtime/) that interprets the program's PTX of
# compute capability 8.0 (ptx/), so that the way of all GPUs but Hopper's is computed, and every access to memory checked.
# Its functions go before those of CUDA's own archive.
file(GLOB emulator_sources CONFIGURE_DEPENDS
  ${CMAKE_CURRENT_LIST_DIR}/*.cc ${CMAKE_CURRENT_LIST_DIR}/ptx/*.cc ${CMAKE_CURRENT_LIST_DIR}/runtime/*.cc)
add_executable(test_cuda_emulated ${emulator_sources} $<TARGET_OBJECTS:test_cuda>)
target_include_directories(test_cuda_emulated PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(test_cuda_emulated PRIVATE $<TARGET_PROPERTY:test_cuda,LINK_LIBRARIES> Boost::iostreams)
target_link_options(test_cuda_emulated PRIVATE -Wl,--as-needed,--allow-multiple-definition)
# At full speed in every build: sanitizers look at what is tested, not at the tool.
target_compile_options(test_cuda_emulated PRIVATE -O3 -fno-sanitize=all -fno-math-errno -fno-trapping-math)
# Of long lists of cases every fifth is taken, all with TANDEM_SOAK=1. Whole runs take 3 s a step, and little memory makes
# the product small by which they measure the GPU's speed.
gtest_discover_tests(test_cuda_emulated TEST_PREFIX emulated_gpu. TEST_FILTER -CudaTraining.*
  TEST_LIST emulated_ops DISCOVERY_TIMEOUT 60)
gtest_discover_tests(test_cuda_emulated TEST_PREFIX emulated_gpu. TEST_FILTER CudaTraining.*
  TEST_LIST emulated_runs DISCOVERY_TIMEOUT 60
  PROPERTIES LABELS soak ENVIRONMENT EMULATED_GPU_MEMORY=600000000)
