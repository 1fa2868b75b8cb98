"""Speech to text with the time of each word: `generate` of Whisper returns the cross attentions, from which the times are read."""

import argparse

import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration
from transformers.modeling_outputs import BaseModelOutput


def model_of(layers, width):
    config = WhisperConfig(
        vocab_size=2000, d_model=width, encoder_layers=2, decoder_layers=layers, encoder_attention_heads=16,
        decoder_attention_heads=16, encoder_ffn_dim=2 * width, decoder_ffn_dim=2 * width,
        bos_token_id=1, eos_token_id=2, pad_token_id=2, decoder_start_token_id=3,
        attn_implementation="eager", suppress_tokens=None, begin_suppress_tokens=None,
    )
    return WhisperForConditionalGeneration(config).cuda().eval()


def times(cross_attentions, heads):
    """The moment at which each word's attention is largest."""
    of_words = []
    for word in cross_attentions:
        of_words.append(torch.stack([word[layer][:, head, -1] for layer, head in heads]).mean(0))
    return torch.stack(of_words, 1).argmax(-1) * 0.02


class Transcriber:
    def __init__(self, args):
        self.model = model_of(args.layers, args.width)
        self.heads = [(args.layers - 1, 0), (args.layers - 2, 3)]
        self.words = args.words

    @torch.no_grad()
    def __call__(self, spectra):
        encoder = self.model.model.encoder
        encoded = BaseModelOutput(torch.cat([encoder(it).last_hidden_state for it in spectra.split(4)]))
        out = super(WhisperForConditionalGeneration, self.model).generate(
            encoder_outputs=encoded,
            decoder_input_ids=torch.full((len(spectra), 1), 3, device="cuda"),
            max_new_tokens=self.words, min_new_tokens=self.words, do_sample=False, num_beams=1,
            output_attentions=True, return_dict_in_generate=True,
        )
        return out.sequences.cpu(), times(out.cross_attentions, self.heads).cpu()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--words", type=int, default=160)
    parser.add_argument("--batch-size", type=int, default=96)
    args = parser.parse_args()
    transcribe = Transcriber(args)
    for part in range(2):
        words, moments = transcribe(torch.randn(args.batch_size, 80, 3000).cuda())
        print(part, words.shape, moments.shape)


if __name__ == "__main__":
    main()
