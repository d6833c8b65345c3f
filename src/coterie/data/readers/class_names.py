"""The class names of the public sets, in label order."""

from __future__ import annotations

from string import ascii_lowercase, ascii_uppercase, digits

DIGITS = tuple(digits)
LETTERS = tuple(ascii_lowercase)
CHARACTERS = tuple(digits + ascii_uppercase + ascii_lowercase)  # EMNIST by class, FEMNIST

# EMNIST merges the lower-case letters that look like their capitals; `balanced` has the same 47.
MERGED = tuple(digits + ascii_uppercase + "abdefghnqrt")

EMNIST: dict[str, tuple[str, ...]] = {
    "byclass": CHARACTERS,
    "bymerge": MERGED,
    "balanced": MERGED,
    "letters": LETTERS,
    "digits": DIGITS,
    "mnist": DIGITS,
}


def _words(text: str) -> tuple[str, ...]:
    """The words of a text."""
    return tuple(text.split())


FASHION = (*_words("t-shirt trouser pullover dress coat sandal shirt sneaker bag"), "ankle boot")

CIFAR10 = _words("airplane automobile bird cat deer dog frog horse ship truck")

CIFAR100 = _words(
    """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly
    camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile
    cup dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp
    lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom
    oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
    possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake
    spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor
    train trout tulip turtle wardrobe whale willow_tree wolf woman worm
    """
)

CIFAR100_COARSE = _words(
    """
    aquatic_mammals fish flowers food_containers fruit_and_vegetables household_electrical_devices
    household_furniture insects large_carnivores large_man-made_outdoor_things
    large_natural_outdoor_scenes large_omnivores_and_herbivores medium_mammals
    non-insect_invertebrates people reptiles small_mammals trees vehicles_1 vehicles_2
    """
)
