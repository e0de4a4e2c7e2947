# libtandem as its users have it: the test program links the library alone, and examples/ is built against what is
# installed. Both use two small models that the program trains first.
set(here ${CMAKE_CURRENT_SOURCE_DIR}/library)
set(models ${CMAKE_CURRENT_BINARY_DIR}/library/models)
add_test(NAME library.models COMMAND ${here}/make_models.sh $<TARGET_FILE:tandem> ${models})
set_tests_properties(library.models PROPERTIES FIXTURES_SETUP library_models)

add_test(NAME library.symbols COMMAND ${here}/symbols.sh $<TARGET_FILE:libtandem>)
add_test(NAME library.example COMMAND ${here}/example.sh ${CMAKE_BINARY_DIR} ${CMAKE_SOURCE_DIR}
  ${CMAKE_CURRENT_BINARY_DIR}/library/example ${CMAKE_CXX_COMPILER} "${CMAKE_CXX_FLAGS}" ${models})
set_tests_properties(library.example PROPERTIES FIXTURES_REQUIRED library_models)

add_executable(test_library ${here}/library_test.cc)
target_link_libraries(test_library PRIVATE libtandem GTest::gtest_main tandem_flags)
target_compile_options(test_library PRIVATE -O1)
target_compile_definitions(test_library PRIVATE TANDEM_MODELS="${models}")
gtest_discover_tests(test_library TEST_PREFIX library. DISCOVERY_TIMEOUT 60
  PROPERTIES FIXTURES_REQUIRED library_models)
