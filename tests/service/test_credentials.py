from balaclava.service.credentials import _ID_BLOCK, DecisionIds, is_decision_id


def test_ids_of_a_block_are_neighbours_in_an_index_and_cannot_be_guessed() -> None:
    ids = DecisionIds()
    drawn = [id for count in (1, 3, 2 * _ID_BLOCK, 1) for id in ids.draw(count)]
    assert len(drawn) == len(set(drawn)) == 2 * _ID_BLOCK + 5
    assert all(map(is_decision_id, drawn))
    blocks = [{id[:4] for id in drawn[n : n + _ID_BLOCK]} for n in range(0, len(drawn), _ID_BLOCK)]
    assert [len(block) for block in blocks] == [1, 1, 1]
    assert len(set.union(*blocks)) == 3
    characters = [{id[place] for id in drawn} for place in range(4, 22)]
    assert all(len(each) == 64 for each in characters)  # of 1,029 ids: missed once in 10^5 runs
