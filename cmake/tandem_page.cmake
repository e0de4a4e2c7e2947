# The page of `tandem report` and `tandem watch` as a C++ source: web/ and the distribution's dygraphs become literals,
# with the hashes by which the page's Content-Security-Policy admits its own code and nothing else.

set(TANDEM_DYGRAPHS /usr/share/javascript/dygraphs/dygraph.min.js CACHE FILEPATH "dygraph.min.js")
if(NOT EXISTS ${TANDEM_DYGRAPHS})
  message(FATAL_ERROR "${TANDEM_DYGRAPHS} is missing: install the package libjs-dygraphs (tools/install-packages build "
    "does), or give its place with -DTANDEM_DYGRAPHS=FILE")
endif()

# SHA-256 of a text in base64, as a Content-Security-Policy writes it.
function(tandem_csp_hash text result)
  string(SHA256 hex "${text}")
  string(APPEND hex "0000")  # to a multiple of 3 bytes
  set(digits "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
  set(base64 "")
  foreach(begin RANGE 0 63 6)
    string(SUBSTRING ${hex} ${begin} 6 group)
    math(EXPR bits "0x${group}")
    foreach(shift 18 12 6 0)
      math(EXPR digit "(${bits} >> ${shift}) & 63")
      string(SUBSTRING ${digits} ${digit} 1 letter)
      string(APPEND base64 ${letter})
    endforeach()
  endforeach()
  string(SUBSTRING ${base64} 0 43 base64)
  set(${result} "'sha256-${base64}='" PARENT_SCOPE)
endfunction()

# tandem_embed_page(FILE): writes the source whose declarations are in report/page_source.h.
function(tandem_embed_page output)
  set(web ${CMAKE_SOURCE_DIR}/web)
  file(GLOB scripts CONFIGURE_DEPENDS ${web}/*.js)  # in the order of their names
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
    ${scripts} ${web}/page.css ${web}/page.html ${TANDEM_DYGRAPHS})
  file(READ ${TANDEM_DYGRAPHS} chart_script)
  string(REGEX REPLACE "//# sourceMappingURL=[^\n]*" "" chart_script "${chart_script}")
  file(READ ${web}/page.css page_style)
  file(READ ${web}/page.html page_body)
  set(page_script "'use strict';\n(() => {\n")
  foreach(script ${scripts})
    file(READ ${script} text)
    string(APPEND page_script "${text}")
  endforeach()
  string(APPEND page_script "})();\n")
  tandem_csp_hash("${chart_script}" chart_script_hash)
  tandem_csp_hash("${page_script}" page_script_hash)
  tandem_csp_hash("${page_style}" page_style_hash)
  configure_file(${CMAKE_SOURCE_DIR}/src/report/page_source.cc.in ${output} @ONLY)
endfunction()
