// What a preflight says.
#pragma once

#include <string>

#include "preflight/prediction.h"

namespace tandem::preflight {

std::string preflight_text(const Measurements& measurements, const Prediction& prediction);
std::string preflight_json(const Measurements& measurements, const Prediction& prediction);  // docs/formats.md

}  // namespace tandem::preflight
