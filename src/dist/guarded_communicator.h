// A communicator whose errors say what became of the team.
//
// Gloo notices a closed connection at once and knows a rank's number in its own group only; the team knows rank, host
// and cause a moment later.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "dist/communicator.h"

namespace tandem {

// `explain` takes an error's text and gives the text to throw in its place; it may wait a little.
std::unique_ptr<Communicator> make_guarded_communicator(std::unique_ptr<Communicator> inner,
                                                        std::function<std::string(const std::string&)> explain);

}  // namespace tandem
