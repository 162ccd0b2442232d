"""What a trained model gives: states and vectors, neighbours, mined pairs, generated text."""
