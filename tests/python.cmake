# Tests that compare with Python packages. tools/python-environment makes .venv; without it, or without the package
# (a script then ends with 77), they skip and say why.

# tandem_python_test(name script arguments ...)
function(tandem_python_test name script)
  set(python ${CMAKE_SOURCE_DIR}/.venv/bin/python)
  add_test(NAME ${name} COMMAND sh -c
    "[ -x \"$0\" ] || { echo \"SKIPPED: $0 is missing; tools/python-environment makes it\"; exit 77; }; exec \"$0\" \"$@\""
    ${python} ${CMAKE_CURRENT_SOURCE_DIR}/${script} ${ARGN})
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 300)
endfunction()

if(TARGET test_observe)
  tandem_python_test(observe.read_with_tensorboard observe/read_with_tensorboard.py $<TARGET_FILE:test_observe>)
endif()
tandem_python_test(text.compare_with_sacrebleu text/compare_with_sacrebleu.py $<TARGET_FILE:tandem>)
if(TARGET test_report)
  tandem_python_test(report.look_with_chromium report/look_with_chromium.py $<TARGET_FILE:test_report>)
endif()
