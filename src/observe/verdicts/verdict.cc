#include "observe/verdicts/verdict.h"

#include <limits>

namespace tandem {

const char* name_of(Confidence confidence) {
  return confidence == Confidence::high ? "high" : confidence == Confidence::medium ? "medium" : "low";
}

double Verdict::figure(const std::string& name) const {
  for (const Figure& one : figures) {
    if (one.name == name) {
      return one.value;
    }
  }
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace tandem
