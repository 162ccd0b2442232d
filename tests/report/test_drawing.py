from xlingjax.report import drawing, html


def test_a_picture_takes_the_pages_ink_and_keeps_its_size():
    figures, (axis,) = drawing.styled(drawing.panels)(1)
    axis.plot([0, 1], [1, 2], color=drawing.COLOURS[0], label="قطة")
    axis.set_title("猫 $5")
    source = html.part("parts", "figures", drawing.labelled(figures, "a cat"))
    assert "猫 $5" in source and "var(--series-0)" in source and drawing.COLOURS[0] not in source
    # 3.4 inches of 72 points.
    assert 'style="width:244.8pt"' in source and source.count("<figure") == 1
    assert 'aria-label="a cat: ' in source
