// Images read at places between their elements, and the way back to the image and to the places.
// Interpolation goes dimension by dimension: a place reads a few taps of every dimension, with
// weights that are polynomials of how far it is behind the first.
#pragma once

#include <string>
#include <vector>

#include "autopar/builder.hpp"

namespace autopar {

struct Sampling {
  std::string mode = "linear";    // "nearest", "linear", "cubic"
  std::string padding = "zeros";  // "zeros", "border", "reflection"
  // What is beyond is reflected at, and where "border" begins: half an element outside the image,
  // or in the middle of its outer elements.
  bool align_corners = false;
};

class Sampler {
 public:
  // image [n, c, ..]; per dimension of it the places [n, 1, places], in elements.
  Sampler(GraphBuilder& to, ValueId image, const std::vector<ValueId>& places, Sampling how);

  ValueId values();  // [n, c, places]
  // From the gradient of the values: by the image, by the places of dimension `d`.
  ValueId image_grad(ValueId grad);
  ValueId place_grad(ValueId grad, std::size_t d);

 private:
  // Of one dimension, [n, taps, places]; the slope is that of the weight, invalid where it is 0.
  struct Taps {
    ValueId index, weight, slope;
  };
  Taps taps_of(ValueId place, std::int64_t extent);
  ValueId reflected(ValueId place, std::int64_t extent);
  ValueId polynomial(ValueId t, std::size_t taps, bool slope);
  // Taps of dimension `d` against those of all dimensions: [n, 1, .., taps, .., 1, places].
  ValueId spread(ValueId taps, std::size_t d);
  ValueId weights(std::size_t steep);  // [n, 1, all taps, places]; steep: the slope there
  ValueId read();                      // [n, c, all taps, places]
  ValueId number(double n) { return to_.scalar(dtype_, n); }

  GraphBuilder& to_;
  ValueId image_;
  Shape shape_;
  DType dtype_;
  Sampling how_;
  std::int64_t places_ = 0, all_ = 1;
  std::vector<Taps> taps_;
  ValueId indices_;        // [n, c, all taps * places] into the flattened image
  ValueId read_, values_;  // once they are there
};

}  // namespace autopar
