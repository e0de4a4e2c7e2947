// The terminal's status line while lines are translated.
#pragma once

#include <functional>

#include "tandem/translation.h"

namespace tandem::decode {

// For CallOptions::on_progress: draws what is done and what time is left, and removes the line at the end.
std::function<void(const CallProgress&)> translation_status();

}  // namespace tandem::decode
