"""Tags for texts: the same head on the tokens of a transformers encoder, with a padding mask.

pip install transformers
python examples/text_classification.py
"""

import random

import torch
from torch import nn
from transformers import BertConfig, BertModel

import mldecoder as mld
from mldecoder.losses import asymmetric_loss

TOPICS = {
    "sport": ["goal", "match", "team", "coach", "score"],
    "food": ["bread", "soup", "pepper", "oven", "sauce"],
    "weather": ["rain", "cloud", "storm", "sun", "frost"],
    "music": ["song", "drum", "choir", "tune", "band"],
}
WORDS = ["<pad>", "the", "a", "and", "with", "of", *(word for words in TOPICS.values() for word in words)]


class TextTagger(nn.Module):
    """An encoder without its pooling, and an ML-Decoder head: every topic looks for its own words."""

    def __init__(self) -> None:
        super().__init__()
        # A real one: AutoModel.from_pretrained("bert-base-uncased") with its tokenizer.
        size = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
        self.encoder = BertModel(BertConfig(vocab_size=len(WORDS), **size), add_pooling_layer=False)
        self.head = mld.MLDecoder(num_classes=len(TOPICS), in_features=32, width=32, ff_width=64, heads=2)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Tokens and their mask, both (b, t), to one logit a topic."""
        states = self.encoder(input_ids=tokens, attention_mask=mask).last_hidden_state  # (b, t, c)
        return self.head(states, key_padding_mask=mask == 0)  # true where a token is padding


def texts(count: int, chance: random.Random) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sentences of one or two topics, padded to the longest: tokens, mask and targets."""
    rows, targets = [], torch.zeros(count, len(TOPICS))
    for i in range(count):
        topics = chance.sample(list(TOPICS), chance.choice([1, 2]))
        words = [chance.choice(TOPICS[topic]) for topic in topics] + chance.choices(WORDS[1:6], k=chance.randint(2, 9))
        chance.shuffle(words)
        rows.append(torch.tensor([WORDS.index(word) for word in words]))
        targets[i, [list(TOPICS).index(topic) for topic in topics]] = 1
    tokens = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    return tokens, (tokens > 0).long(), targets


def main() -> None:
    torch.manual_seed(0)
    chance = random.Random(0)
    model = TextTagger()
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(60):
        tokens, mask, targets = texts(32, chance)
        loss = asymmetric_loss(model(tokens, mask), targets, reduction="image_mean")
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % 20 == 0:
            print(f"step {step}: loss {loss.item():.2f}")
    model.eval()
    tokens, mask, targets = texts(200, chance)
    with torch.no_grad():
        ap = mld.metrics.average_precision(model(tokens, mask), targets)
    print(f"mAP on new sentences: {100 * ap.mean():.1f}")


if __name__ == "__main__":
    main()
