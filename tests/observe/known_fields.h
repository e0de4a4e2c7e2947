// Whether observe/fields.h has a field that was written.
#pragma once

#include <algorithm>
#include <iterator>
#include <string>

#include "observe/fields.h"

namespace tandem::testing {

inline bool is_known_field(const std::string& kind, const std::string& name) {
  const auto in = [&](const auto& fields) {
    return std::any_of(std::begin(fields), std::end(fields), [&](const auto& field) { return field.name == name; });
  };
  return kind == "train"    ? in(kTrainFields)
         : kind == "valid"  ? in(kValidFields) || in(kValidTexts)
         : kind == "sample" ? in(kSampleTexts)
         : kind == "event"  ? in(kEventTexts)
         : kind == "setup"  ? in(kSetupFields) || in(kSetupTexts)
         : kind == "probe"  ? in(kProbeFields) || in(kProbeTexts) || name.starts_with("net.")
                            : false;
}

}  // namespace tandem::testing
