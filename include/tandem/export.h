// Marks what libtandem.so exports; all its other symbols are hidden.
#pragma once

#define TANDEM_EXPORT __attribute__((visibility("default")))
