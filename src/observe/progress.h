// The console's output while a run trains. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "observe/fields.h"

namespace tandem::observe {

// `window`: the steps since the last line. `last_step`: 0 = not known; `seconds_left`: below 0 or not finite = not
// known.
//
// step 1,200/50,000  epoch 0.43  loss 4.1234  lr 1.48e-04  grad 0.87  12.3k tok/s  812 ms/step  ETA 11 h 02 m
std::string console_line(const TrainPoint& window, int64_t last_step, double seconds_left);

// [#########-----------]  45 %, `width` characters between the brackets.
std::string progress_bar(double share, int width = 20);

// Bar and line in one; drops the less important parts if the terminal is too narrow.
std::string status_line(const TrainPoint& window, int64_t last_step, double seconds_left, int columns);

}  // namespace tandem::observe
