// A communicator whose errors explain what happened to the process group.
//
// Gloo notices a closed connection at once but knows only a rank's number in its own group; the process group knows the
// rank, its host and the cause a moment later.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "dist/communicator.h"

namespace tandem::dist {

// `explain` takes an error's text and returns the text to throw in its place; it may wait a little.
std::unique_ptr<Communicator> make_guarded_communicator(std::unique_ptr<Communicator> inner,
                                                        std::function<std::string(const std::string&)> explain);

}  // namespace tandem::dist
