// Debian's package of Gloo lacks this header, which its others include. Only what those need to be read: the library
// makes and uses these objects itself. A system's own header is found first.
#pragma once

#include <memory>

namespace gloo {

template <class T>
class NonOwningPtr {
  std::shared_ptr<T> ptr_;
};

template <class T>
class WeakNonOwningPtr {
  std::weak_ptr<T> ptr_;
};

}  // namespace gloo
