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
  return kind == "train"    ? in(observe::kTrainFields)
         : kind == "valid"  ? in(observe::kValidFields) || in(observe::kValidTexts)
         : kind == "sample" ? in(observe::kSampleTexts)
         : kind == "event"  ? in(observe::kEventTexts)
         : kind == "setup"  ? in(observe::kSetupFields) || in(observe::kSetupTexts)
         : kind == "probe"  ? in(observe::kProbeFields) || in(observe::kProbeTexts) || name.starts_with("net.")
                            : false;
}

}  // namespace tandem::testing
