// The networks, one function a family.
#pragma once

#include "model.h"

namespace gyre::bench {

Model ResNet50();  // He et al. 2016, with the stride in the 3x3 convolution ("v1.5")
Model ResNet101();
Model Vgg16();       // Simonyan and Zisserman 2015, configuration D, without normalisation
Model AlexNet();     // Krizhevsky 2014, "One weird trick", one tower
Model GoogLeNet();   // Szegedy et al. 2015, normalised, with both auxiliary classifiers
Model Inception3();  // Szegedy et al. 2016, with the auxiliary classifier
Model BertLarge();   // Devlin et al. 2019, with both heads of the pre-training
Model DeepSpeech();  // as Amodei et al. 2016 ("Deep Speech 2"), of the size that Lin et al. 2018 give: 488 MB
Model LstmPtb();     // Zaremba et al. 2014, the large model

}  // namespace gyre::bench
