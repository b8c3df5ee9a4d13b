"""How likely engines find a text: the text, the engines that read it, and the comparison of what they say."""
