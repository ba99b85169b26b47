// The TCP transport's face: Hub::Listen makes one, Hub::Open gives its Streams.
#pragma once

#include "transport/tcp/hub.h"  // IWYU pragma: export
