// The whole of Gyre's public face.
#pragma once

#include "gyre/arena.h"
#include "gyre/communicator.h"
#include "gyre/compression.h"
#include "gyre/distributed_optimizer.h"
#include "gyre/dtype.h"
#include "gyre/job_report.h"
#include "gyre/named_operations.h"
#include "gyre/optimizer.h"
#include "gyre/options.h"
#include "gyre/parameter_server.h"
#include "gyre/reducer.h"
#include "gyre/rows.h"
#include "gyre/runtime.h"
#include "gyre/tensor.h"
#include "gyre/version.h"
#include "gyre/work.h"
