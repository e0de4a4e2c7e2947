# The one list of cases of the ops and their reference. The programs that take these objects say which devices they have:
# test_backend the CPU, test_cuda the GPU.
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/ops/*.cc ${CMAKE_CURRENT_SOURCE_DIR}/reference/*.cc)
add_library(op_tests OBJECT ${sources})
target_include_directories(op_tests PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(op_tests PRIVATE tandem_backend GTest::gtest tandem_flags)
target_compile_options(op_tests PRIVATE $<$<NOT:$<CONFIG:Debug>>:-O1>)
# The reference's loops stay plain; the compiler may add up in another order, which makes them several times as fast.
set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/reference/reference_backend.cc PROPERTIES COMPILE_OPTIONS
  "$<$<NOT:$<CONFIG:Debug>>:-O3;-fassociative-math;-fno-signed-zeros;-fno-trapping-math;-funroll-loops;-fvariable-expansion-in-unroller>")
