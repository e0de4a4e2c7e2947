// What the console says while a run trains. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "core/human.h"

namespace tandem {

struct Progress {
  int64_t step = 0;
  int64_t last_step = 0;  // 0 = not known
  double epoch = 0;
  double loss = 0;
  double learning_rate = 0;
  double gradient_norm = 0;
  double tokens_per_second = 0;
  double ms_per_step = 0;
  double seconds_left = -1;  // below 0 or not finite = not known
};

// step 1,200/50,000  epoch 0.43  loss 4.1234  lr 1.48e-04  grad 0.87  12.3k tok/s  812 ms/step  ETA 11 h 02 m
std::string console_line(const Progress& progress);

// [#########-----------]  45 %, `width` characters between the brackets.
std::string progress_bar(double share, int width = 20);

// Bar and line in one; where the terminal is too narrow, without the less important parts.
std::string status_line(const Progress& progress, int columns);

}  // namespace tandem
