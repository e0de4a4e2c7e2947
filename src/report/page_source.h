// The parts of the page that are the same for every run, embedded at build time (cmake/tandem_page.cmake).
#pragma once

#include <string_view>

namespace tandem::report::page_source {

extern const std::string_view chart_script;  // dygraphs
extern const std::string_view page_script, page_style, page_body;
// Hashes in the form of a Content-Security-Policy.
extern const std::string_view chart_script_hash, page_script_hash, page_style_hash;

}  // namespace tandem::report::page_source
