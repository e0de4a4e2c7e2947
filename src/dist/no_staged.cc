#include "core/error.h"
#include "dist/process_group.h"

namespace tandem::dist {

std::unique_ptr<Communicator> make_staged_communicator(std::unique_ptr<Communicator>, ProcessGroup&, DeviceStream) {
  fail("this binary was built without CUDA");
}

}  // namespace tandem::dist
