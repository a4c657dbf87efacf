from __future__ import annotations

from typing import Any

import pytest
import torch

from trainer.generate import Decoder, Sampling, draw

GREEDY = Sampling(temperature=0)


def _generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("loops", [1, 2, 3])
def test_greedy_writing_takes_the_argmax_of_the_full_forward(make_model: Any, loops: int) -> None:
    model = make_model(num_loops=loops)
    written = Decoder(model).continue_([5, 9, 2], 12, {-1}, GREEDY, _generator())
    sequence = [5, 9, 2]
    for token in written:
        assert token == int(model(torch.tensor(sequence))[-1].argmax())
        sequence.append(token)
    assert len(written) == 12


def test_a_second_prompt_that_shares_a_beginning_gives_what_a_fresh_decoder_gives(make_model: Any) -> None:
    model = make_model()
    used = Decoder(model)
    used.continue_([1, 2, 3, 4, 5], 6, {-1}, GREEDY, _generator())
    for prompt in ([1, 2, 3, 9, 9, 9], [1, 2, 3], [7]):
        fresh = Decoder(model).continue_(prompt, 6, {-1}, GREEDY, _generator())
        assert used.continue_(prompt, 6, {-1}, GREEDY, _generator()) == fresh


def test_it_stops_after_a_stop_token(make_model: Any) -> None:
    model = make_model()
    free = Decoder(model).continue_([5], 8, {-1}, GREEDY, _generator())
    stop = free[3]
    assert Decoder(model).continue_([5], 8, {stop}, GREEDY, _generator()) == free[: free.index(stop) + 1]


def test_it_stops_where_the_model_ends(make_model: Any) -> None:
    model = make_model(max_position_embeddings=6)
    assert len(Decoder(model).continue_([1, 2, 3, 4], 50, {-1}, GREEDY, _generator())) == 2
    with pytest.raises(ValueError, match="6 tokens: the model takes 1 to 5"):
        Decoder(model).continue_([1] * 6, 1, {-1}, GREEDY, _generator())
    with pytest.raises(ValueError, match="a prompt of 0 tokens"):
        Decoder(model).continue_([], 1, {-1}, GREEDY, _generator())


def test_sampling_is_a_function_of_the_seed(make_model: Any) -> None:
    model, hot = make_model(), Sampling(temperature=3.0, top_k=64, top_p=1.0)
    texts = [tuple(Decoder(model).continue_([5], 20, {-1}, hot, _generator(seed))) for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_draw_keeps_to_top_k_and_top_p() -> None:
    logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()
    few = {draw(logits, Sampling(1.0, 1.0, 2), _generator(seed)) for seed in range(60)}
    assert few == {0, 1}
    nucleus = {draw(logits, Sampling(1.0, 0.7, 4), _generator(seed)) for seed in range(60)}
    assert nucleus == {0, 1}
    assert {draw(logits, Sampling(1.0, 1.0, 9), _generator(seed)) for seed in range(200)} == {0, 1, 2, 3}
    assert draw(logits, GREEDY, _generator()) == 0
