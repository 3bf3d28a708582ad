import pyarrow as pa

from training.data.loader import Loader


def test_ranks_share_a_batch_and_a_later_start_continues_it(stores):
    store = stores.train
    alone = [batch["tokens"].to_pylist() for batch in Loader(store, ["tokens"], 12, 5).batches(0, 300)]
    shares = [list(Loader(store, ["tokens"], 12, 5, rank, 3).batches(0, 300)) for rank in range(3)]
    assert [pa.concat_tables(step)["tokens"].to_pylist() for step in zip(*shares, strict=True)] == alone
    later = [batch["tokens"].to_pylist() for batch in Loader(store, ["tokens"], 12, 5).batches(177, 300)]
    assert later == alone[177:]
    assert store.take(Loader(store, ["tokens"], 12, 5).rows(177))["tokens"].to_pylist() == alone[177]
