// GYRE_EXPORT marks what libgyre shows; everything else is compiled with hidden visibility.
#pragma once

#define GYRE_EXPORT [[gnu::visibility("default")]]
