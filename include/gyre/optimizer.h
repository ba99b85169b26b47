// Placeholder until the optimizer layer lands.
#pragma once
