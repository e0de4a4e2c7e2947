# A library that answers like NVML, for the GPU probe's tests; the folder is not globbed into the test program.
add_library(fake_nvml MODULE ${CMAKE_CURRENT_LIST_DIR}/fake_nvml/fake_nvml.cc)
add_dependencies(test_observe fake_nvml)
target_compile_definitions(test_observe PRIVATE TANDEM_FAKE_NVML="$<TARGET_FILE:fake_nvml>")
