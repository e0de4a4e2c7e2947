# tandem with a CUDA runtime that has no GPU (driver/), so that what happens when one is missing, too old or lost can be
# tried where there is none. Its functions go before those of CUDA's own archive, should another version of nvcc's code
# need one more from there.
file(GLOB fake_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/driver/*.cc
  ${CMAKE_SOURCE_DIR}/tools/emulated_gpu/one_algorithm.cc)
add_executable(tandem_on_fake_gpu ${fake_sources} $<TARGET_OBJECTS:tandem>)
target_link_libraries(tandem_on_fake_gpu PRIVATE $<TARGET_PROPERTY:tandem,LINK_LIBRARIES>)
target_link_options(tandem_on_fake_gpu PRIVATE -Wl,--as-needed,--allow-multiple-definition)

file(GLOB test_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.cc)
add_executable(test_fake_gpu ${test_sources} ${CMAKE_CURRENT_SOURCE_DIR}/end_to_end/program.cc)
target_include_directories(test_fake_gpu PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(test_fake_gpu PRIVATE tandem_core GTest::gtest_main tandem_flags)
target_compile_options(test_fake_gpu PRIVATE $<$<NOT:$<CONFIG:Debug>>:-O1>)
target_compile_definitions(test_fake_gpu PRIVATE TANDEM_BINARY="$<TARGET_FILE:tandem_on_fake_gpu>")
add_dependencies(test_fake_gpu tandem_on_fake_gpu)
gtest_discover_tests(test_fake_gpu TEST_PREFIX fake_gpu. DISCOVERY_TIMEOUT 60)
