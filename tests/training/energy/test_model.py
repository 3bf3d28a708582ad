import pytest
import torch
from transformers import AutoModel

from pipeline.models.model_folder import quiet
from training.energy.model import EnergyModel, parts_of_like_length
from training.energy.presets import PRESETS

SUMS = {"vocabulary_size": 14, "eos_token_id": 13}
TINY = ("linear", "bilstm-tiny", "unit-nano", "bit-nano")


def model_of(name: str, seed: int = 0) -> EnergyModel:
    """With weights that are not small: every part shows in the energy."""
    torch.manual_seed(seed)
    model = EnergyModel(PRESETS[name].build(SUMS, 14)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return model


@pytest.fixture
def ids() -> torch.Tensor:
    return torch.randint(0, 14, (6, 9), generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def test_energies_are_what_the_paper_says(ids):
    """Each kind once more, in a line or two."""
    linear = model_of("linear")
    assert torch.allclose(linear(ids), linear.network.energies.weight[:, 0][ids].sum(1), atol=1e-6)
    bilstm = model_of("bilstm-tiny")
    states = bilstm.network.lstm(bilstm.network.embeddings(ids))[0]
    head = bilstm.network.energy
    assert torch.allclose(bilstm(ids), states.mean(1) @ head.weight[0] + head.bias, atol=1e-6)
    unit = model_of("unit-nano")
    states = unit.network.transformer(torch.cat([torch.full((6, 1), 13), ids], 1)).last_hidden_state[:, 1:]
    head = unit.network.energy
    assert torch.allclose(unit(ids), states.mean(1) @ head.weight[0] + head.bias, atol=1e-5)
    bit = model_of("bit-nano")
    states = bit.network.transformer(torch.cat([torch.full((6, 1), 14), ids], 1)).last_hidden_state
    head = bit.network.energy
    assert torch.allclose(bit(ids), states[:, 0] @ head.weight[0] + head.bias, atol=1e-5)


@torch.no_grad()
def test_a_unit_never_looks_ahead_and_a_bit_does(ids):
    changed = ids.clone()
    changed[:, -1] = (ids[:, -1] + 1) % 14
    states = [model_of("unit-nano").network.states(x, None)[:, :-1] for x in (ids, changed)]
    assert torch.allclose(*states, atol=1e-6)
    states = [model_of("bit-nano").network.states(x, None)[:, :-1] for x in (ids, changed)]
    assert not torch.allclose(*states, atol=1e-2)


@pytest.mark.parametrize("name", TINY)
@torch.no_grad()
def test_what_stands_after_a_sequence_changes_nothing(name, ids):
    model = model_of(name)
    alone = torch.cat([model(ids[row : row + 1, : 4 + row % 3]) for row in range(6)])
    mask = (torch.arange(9) < (4 + torch.arange(6) % 3)[:, None]).long()
    assert torch.allclose(model(ids, mask), alone, atol=1e-5)
    assert not torch.allclose(model(ids), alone, atol=1e-2)


@pytest.mark.parametrize("name", TINY)
@torch.no_grad()
def test_a_batch_that_is_computed_in_parts_keeps_its_order(name):
    model, rows = model_of(name), 37
    ids = torch.randint(0, 14, (rows, 9), generator=torch.Generator().manual_seed(2))
    lengths = torch.randint(2, 10, (rows,), generator=torch.Generator().manual_seed(3))
    alone = torch.cat([model(ids[row : row + 1, : lengths[row]]) for row in range(rows)])
    assert torch.allclose(model(ids, (torch.arange(9) < lengths[:, None]).long()), alone, atol=1e-5)


def test_parts_of_like_length_have_all_sequences_and_little_padding():
    lengths = torch.randn(32, generator=torch.Generator().manual_seed(0)).mul(8).add(66).round().long()
    parts = parts_of_like_length(lengths)
    assert sorted(torch.cat(parts).tolist()) == list(range(32))
    computed = sum(len(part) * int(lengths[part].max()) for part in parts)
    assert 32 * int(lengths.max()) / int(lengths.sum()) > 1.2  # together, a fifth would be padding
    assert computed / int(lengths.sum()) < 1.05
    assert len(parts_of_like_length(lengths[:3])) == 1


@pytest.mark.parametrize("name", TINY)
@torch.no_grad()
def test_a_saved_model_gives_the_same_energies(name, ids, tmp_path):
    model = model_of(name)
    with quiet():
        model.save_pretrained(tmp_path)
        again = [cls.from_pretrained(tmp_path).eval() for cls in (EnergyModel, AutoModel)]
    assert all(torch.allclose(model(ids), other(ids), atol=1e-6) for other in again)
    assert model(ids).shape == (6,)
    assert model.to(torch.bfloat16)(ids).dtype == torch.float32


def test_every_weight_is_trained():
    """No pooler that nobody reads, and no token whose embedding stays zero because a padding has its number."""
    for name in TINY:
        model = model_of(name)
        model(torch.arange(14).repeat(3, 1)).pow(2).sum().backward()
        gradients = {part: weight.grad for part, weight in model.named_parameters()}
        assert all(gradient is not None for gradient in gradients.values()), name
        assert (model.get_input_embeddings().weight.grad[:14] != 0).any(1).all(), name
