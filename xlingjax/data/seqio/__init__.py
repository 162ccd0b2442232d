"""SeqIO and TensorFlow: imported here and in `tasks/` alone, where a SeqIO mixture is named."""
