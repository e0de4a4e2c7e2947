// The one exception that libtandem throws.
#pragma once

#include <stdexcept>

#include "tandem/export.h"

namespace tandem {

// The message is one line (a list of faults has one line each) that names what is wrong and, if possible, what to do.
class TANDEM_EXPORT Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace tandem
