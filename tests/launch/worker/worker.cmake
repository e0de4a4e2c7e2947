# A stand-in for tandem that the launcher's tests start: it has the commands agent, launch and work.
add_executable(test_worker ${CMAKE_CURRENT_SOURCE_DIR}/launch/worker/main.cc)
target_link_libraries(test_worker PRIVATE tandem_launch tandem_flags)
target_compile_options(test_worker PRIVATE $<$<NOT:$<CONFIG:Debug>>:-O1>)
target_compile_definitions(test_launch PRIVATE TANDEM_WORKER="$<TARGET_FILE:test_worker>")
add_dependencies(test_launch test_worker)
