"""The page of `tilewright report`: data from the timing model, one file of HTML to show them."""





