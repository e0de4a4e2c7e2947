// A figure of a verdict by its name.
#pragma once

#include <limits>
#include <string>

#include "observe/verdicts/verdict.h"

namespace tandem::testing {

inline double figure_of(const observe::Verdict& verdict, const std::string& name) {  // NaN: there is none
  for (const observe::Figure& one : verdict.figures) {
    if (one.name == name) {
      return one.value;
    }
  }
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace tandem::testing
