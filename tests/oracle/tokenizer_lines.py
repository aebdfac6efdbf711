"""Varied lines of text for comparing tokenizers: typical prompts, and text that breaks tokenizers.

Everything is drawn from one seed, so a line that differs can be reproduced.
"""

import random

SENTENCES = [
    "The quick brown fox jumps over the lazy dog, and nobody minds at all.",
    "What is the capital of France? The capital of France is Paris.",
    "She said: \"I don't think they'll've gone\" -- but it's where we'd been, and I'm sure you're right.",
    "In 1998, 3,141,592 people paid $12.50 (or 9.99€) for 1/2 kg; see §4.2.1 and https://example.org/a?b=c&d=1#e.",
    "The tokenizer merges the pairs of bytes that occur most often in the training text, one after another.",
    "Der schnelle braune Fuchs springt über den faulen Hund, während Jürgen Äpfel isst. Straße, GROẞ, naïve.",
    "L'été dernier, j'ai mangé une crème brûlée à l'hôtel où nous étions arrivés après minuit.",
    "El niño comió piñas; ¿cuántas? ¡Muchísimas! Mañana vendrá el pingüino.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю. Москва — столица России.",
    "Η γρήγορη καφέ αλεπού πηδάει πάνω από το τεμπέλικο σκυλί.",
    "敏捷的棕色狐狸跳过了懒狗。法国的首都是巴黎,人口约二百一十万。",
    "いろはにほへと ちりぬるを。カタカナとひらがなと漢字を混ぜる。東京は日本の首都です。",
    "키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다.",
    "نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر. السَّلامُ عَلَيْكُم ورحمة الله.",
    "דג סקרן שט בים מאוכזב ולפתע מצא חברה. שָׁלוֹם עֲלֵיכֶם",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश करने वाले विष्णुवतार भगवान श्रीराम।",
    "আমার সোনার বাংলা, আমি তোমায় ভালোবাসি। தமிழ் மொழி மிகவும் பழமையானது. ภาษาไทยไม่มีช่องว่างระหว่างคำ",
    "def main(argv: list[str]) -> int:\n    for i, arg in enumerate(argv):\n        print(f\"{i}: {arg!r}\")\n    return 0",
    "for (size_t i = 0; i < n; ++i) {\n\tsum += a[i] * b[i];  // dot product\n}\n",
    "#include <vector>\nstruct Node { uint32_t depth = 0; std::vector<int> next; };\r\n",
    "SELECT name, COUNT(*) FROM users WHERE age >= 18 GROUP BY name HAVING COUNT(*) > 1 ORDER BY 2 DESC;",
    "{\"id\": 17, \"tags\": [\"a\", \"b\"], \"nested\": {\"x\": null, \"y\": -1.5e-10}}",
    "<div class=\"box\"><p>Hello,&nbsp;<b>world</b>!</p></div><!-- comment -->",
    "| a | b |\n|---|---|\n| 1 | 2 |\n\n- [x] done\n- [ ] not done\n\n```sh\nls -la | grep '^d'\n```",
]
SPACES = [" ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", "\r", "\u00a0", "\u2028", "\u2029", "\u3000", "\u200b",
          "\u180e", "\u1680", "\u202f", "\u205f", "\u2003", "\u0085", "\u000b", "\u000c", "\ufeff", "\u001c"]
CONTRACTIONS = ["'s", "'S", "'t", "'T", "'re", "'RE", "'Re", "'ve", "'VE", "'m", "'M", "'ll", "'LL", "'lL", "'d",
                "'D", "\u2019s", "\u2019ll", "'\u017f", "''s", "'sx", "'", "'x", "'l", "'r", "'ſt", "'K"]
EMOJI = ["😀", "👍🏽", "👨‍👩‍👧‍👦", "🏳️‍🌈", "❤️", "🇫🇷", "🤷🏿‍♀️", "1️⃣", "☃", "♟️", "🫠", "🧑‍💻"]
COMBINING = ["e\u0301", "a\u0308\u0323", "o\u0302\u0301\u0300", "\u0301", "Z\u0351\u036b\u0343", "क्षि", "ก็ำ", "가\u11a8",
             "ﬁ", "ﬆ", "Å", "ÅA\u030a", "ı", "İ", "ẞ", "ǆ", "ª", "ʰ", "ⅷ", "²", "①", "½", "𝟙", "𝕏"]
DIGIT_ZEROS = [0x30, 0x660, 0x6F0, 0x966, 0x9E6, 0xE50, 0xFF10, 0x1D7CE, 0x11F50, 0x1E4F0, 0x10D40, 0x16130, 0x11DE0]
NUMBERS = ["Ⅳ", "¼", "〇", "一", "㊿", "௧௨", "𐄇", "፲"]
SPECIALS = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_", "end|>", "<|", "|>", "<|im_end", "<tool>",
            "<tool", "<|im_end|><|im_end|>", "<|im_<|im_end|>end|>"]
RANGES = [(0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x5FF), (0x600, 0x6FF), (0x900, 0xDFF),
          (0xE00, 0x139F), (0x1C80, 0x1FFF), (0x2000, 0x2BFF), (0x3000, 0x9FFF), (0xA000, 0xABFF), (0xAC00, 0xD7FF),
          (0xE000, 0xFFFF), (0x10000, 0x1FFFF), (0x20000, 0x3FFFF), (0xE0000, 0x10FFFF)]


def _words(rng):
    words = rng.choice(SENTENCES).split(" ")
    begin = rng.randrange(len(words))
    words = words[begin:begin + rng.randint(1, 12)]
    return "".join(w + (" " if rng.random() < 0.9 else rng.choice(SPACES)) for w in words)


def _digits(rng):
    out = []
    for _ in range(rng.randint(1, 4)):
        zero = rng.choice(DIGIT_ZEROS)
        out.append("".join(chr(zero + rng.randrange(10)) for _ in range(rng.randint(1, 8))))
    return rng.choice(["", " ", ".", ","]).join(out) + rng.choice(["", rng.choice(NUMBERS)])


def _random_unicode(rng):
    out = []
    for _ in range(rng.randint(1, 20)):
        low, high = rng.choice(RANGES)
        code = rng.randint(low, high)
        out.append(chr(code) if not 0xD800 <= code < 0xE000 else "\ufffd")
    return "".join(out)


def _pieces(rng, pool, most):
    return "".join(rng.choice(pool) for _ in range(rng.randint(1, most)))


def _fragment(rng, source_lines):
    kind = rng.randrange(10)
    if kind == 0:
        return _pieces(rng, SPACES, 6)
    if kind == 1:
        return _digits(rng)
    if kind == 2:
        return rng.choice(["it", "They", "", "É", "7", "漢"]) + rng.choice(CONTRACTIONS) + rng.choice(["", " ", "a", "\n"])
    if kind == 3:
        return _pieces(rng, EMOJI, 4)
    if kind == 4:
        return _pieces(rng, COMBINING, 5)
    if kind == 5:
        return _random_unicode(rng)
    if kind == 6:
        return "".join(chr(rng.choice([rng.randrange(32), rng.randrange(127, 160)])) for _ in range(rng.randint(1, 5)))
    if kind == 7:
        return rng.choice(SPECIALS)
    if kind == 8 and source_lines:
        begin = rng.randrange(len(source_lines))
        return "\n".join(source_lines[begin:begin + rng.randint(1, 4)])
    return _words(rng)


def varied_lines(count, seed, source_lines=()):
    """Returns `count` texts. `source_lines` are additional lines of program code to draw from."""
    rng = random.Random(seed)
    lines = []
    while len(lines) < count:
        kind = rng.randrange(4)
        if kind == 0:
            lines.append(_words(rng))
        elif kind == 1 and source_lines:
            begin = rng.randrange(len(source_lines))
            lines.append("\n".join(source_lines[begin:begin + rng.randint(1, 12)]))
        else:
            lines.append("".join(_fragment(rng, source_lines) for _ in range(rng.randint(1, 6))))
    return lines


def every_code_point():
    """Lines with every code point, each at a position where its class decides how its neighbours are split."""
    lines = []
    for begin in range(0, 0x110000, 64):
        codes = [c for c in range(begin, begin + 64) if not 0xD800 <= c < 0xE000]
        if codes:
            lines.append("".join(f"x{chr(c)}y 1{chr(c)}2 {chr(c)}{chr(c)} .{chr(c)}. \n{chr(c)}\n" for c in codes))
    return lines


def hostile_texts(size, seed):
    """Texts of about `size` bytes that are a single piece, or very many pieces, under some pattern."""
    rng = random.Random(seed)
    units = ["a", " ", "7", "\n", " a", " \n", "-", "'", "ab", "=", "\u00a0", "你", "\u0301", "<|im_", "\t\t ", "Ab1 "]
    texts = [(unit * size)[:size] for unit in units]
    texts.append("".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(size)))
    texts.append("".join(rng.choice("etaoin") for _ in range(size)))
    texts.append("".join(rng.choice("+-*/=<>!(){}") for _ in range(size)))
    texts.append("".join(rng.choice(" \t\n") for _ in range(size)))
    return texts + [" " * size + "a", "\n" * (size // 2) + " " * (size // 2) + "a"]
