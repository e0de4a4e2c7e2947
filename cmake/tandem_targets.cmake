# Helpers that keep every folder's CMakeLists.txt a few lines long.

# Compile flags of our own code. x86-64-v3 (AVX2, FMA; any server since 2013) keeps the binary portable between
# machines; the matrix products choose AVX-512 and AMX at run time inside oneDNN.
add_library(tandem_flags INTERFACE)
target_compile_options(tandem_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow $<$<BOOL:${TANDEM_WERROR}>:-Werror>>)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_options(tandem_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-march=x86-64-v3>)
endif()

# What makes a mistake in our code harder to use: guards on the stack, checked calls of the C library (they need the
# optimiser and are not for sanitizers, which check more), random addresses, no tables that can be overwritten or run.
set(hardening -fstack-protector-strong)
if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug" AND NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize")
  list(APPEND hardening -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3)  # some distributions' compilers define another
endif()
list(JOIN hardening "," hardening_of_nvcc)
target_compile_options(tandem_flags INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:${hardening}>" $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${hardening_of_nvcc}>)
target_link_options(tandem_flags INTERFACE -Wl,-z,relro,-z,now,-z,noexecstack)
include(CheckPIESupported)
check_pie_supported(LANGUAGES CXX)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# tandem_library(name LIBS ... SOURCES ... WITHOUT ...): the folder's .cc files as one target. Only the named libraries can
# be reached, so a forbidden dependency fails to link. The objects serve the program and libtandem.so alike: they are
# position-independent, and hidden symbols keep them as fast as those of a program alone.
function(tandem_library name)
  cmake_parse_arguments(ARG "" "" "LIBS;SOURCES;WITHOUT" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc ${ARG_SOURCES})
  if(ARG_WITHOUT)
    list(REMOVE_ITEM sources ${ARG_WITHOUT})
  endif()
  if(sources)
    add_library(${name} STATIC ${sources})
    set_target_properties(${name} PROPERTIES
      POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden)
    target_include_directories(${name} PUBLIC ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
    target_link_libraries(${name} PUBLIC ${ARG_LIBS} PRIVATE tandem_flags)
  else()
    add_library(${name} INTERFACE)
    target_include_directories(${name} INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
    target_link_libraries(${name} INTERFACE ${ARG_LIBS})
  endif()
endfunction()

# tandem_test(folder LIBS ... [LABEL label]): tests/<folder>/*.cc as one program, each test known to ctest by name.
function(tandem_test folder)
  cmake_parse_arguments(ARG "" "LABEL" "LIBS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cc)
  if(sources)
    add_executable(test_${folder} ${sources})
    target_include_directories(test_${folder} PRIVATE ${CMAKE_SOURCE_DIR}/tests)
    target_link_libraries(test_${folder} PRIVATE ${ARG_LIBS} GTest::gtest_main tandem_flags)
    target_compile_options(test_${folder} PRIVATE $<$<NOT:$<CONFIG:Debug>>:-O1>)  # -O3 doubles the build's time
    target_compile_definitions(test_${folder} PRIVATE
      TANDEM_SOURCE_DIR="${CMAKE_SOURCE_DIR}" TANDEM_BINARY="$<TARGET_FILE:tandem>")
    gtest_discover_tests(test_${folder} TEST_PREFIX ${folder}. DISCOVERY_TIMEOUT 60 PROPERTIES LABELS "${ARG_LABEL}")
  endif()
endfunction()
