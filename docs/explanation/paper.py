# ---
# jupyter:
#   kernelspec:
#     name: python3
#     display_name: Python 3
#     language: python
# ---

# %% [markdown]
# # The paper's six methods in plain NumPy
#
# NCM, TEEN, FeCAM, C-FeCAM, RanPAC and C-RanPAC, equation by equation, with nothing but NumPy: dense matrices, loops over
# classes, no shortcuts. This is the file to read first. The heads of the package compute the same numbers with factored
# covariances and running sums, and a test compares both (`tests/heads/test_plain_paper.py`).
#
# The samples of a session are a dictionary: class → rows of features, an array of shape (n, d). `base` is the first session
# with many samples a class, `new` holds the classes of five samples each. Every method returns scores, one row for each
# row of `X` and one column for each class, base classes first; the class with the highest score is the answer.

# %%
import numpy as np


def unit(rows):
    """Return rows scaled to length one."""
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def covariance(rows):
    """Return the covariance with n - 1 in the denominator; that of a single sample is zero."""
    centered = rows - rows.mean(axis=0)
    return centered.T @ centered / max(len(rows) - 1, 1)


# %% [markdown]
# ## Calibration: equations (1) to (4)
#
# A new class has five samples: a noisy mean, and a covariance of rank four. It borrows from the base classes that are most
# like it. (1) and (2) say how much from which, (3) mixes the means, (4) adds the covariances.


# %%
def similarity_weights(mean, base_means, tau=16.0):
    """Equations (1) and (2): the softmax over the base classes of tau times the cosine."""
    similarity = tau * (unit(base_means) @ unit(mean))
    powers = np.exp(similarity - similarity.max())
    return powers / powers.sum()


def calibrated(rows, base, alpha=0.9, beta=1.0, tau=16.0):
    """Return mean and covariance of a new class by equations (3) and (4)."""
    mean = rows.mean(axis=0)
    base_means = np.stack([own.mean(axis=0) for own in base.values()])
    weights = similarity_weights(mean, base_means, tau)
    borrowed = sum(weight * covariance(own) for weight, own in zip(weights, base.values(), strict=True))
    return alpha * mean + (1 - alpha) * weights @ base_means, beta * (covariance(rows) + borrowed)


def gaussians(base, new, calibrate):
    """Return mean and covariance of each class; base classes keep their own."""
    own = [(rows.mean(axis=0), covariance(rows)) for rows in [*base.values(), *new.values()]]
    return own[: len(base)] + [calibrated(rows, base) for rows in new.values()] if calibrate else own


# %% [markdown]
# ## NCM and TEEN
#
# The nearest class mean, by Euclidean distance. TEEN is the same with calibrated means of the new classes.


# %%
def ncm(base, new, X, calibrate=False):
    """Return the negative squared distances to the class means."""
    means = [mean for mean, _ in gaussians(base, new, calibrate)]
    return np.stack([-((X - mean) ** 2).sum(axis=1) for mean in means], axis=1)


def teen(base, new, X):
    """NCM with calibrated means."""
    return ncm(base, new, X, calibrate=True)


# %% [markdown]
# ## FeCAM and C-FeCAM: equations (5) and (6)
#
# The Mahalanobis distance, with a covariance of its own for each class. That of few samples cannot be inverted, so gamma is
# added to its diagonal first, and N turns it into correlations. Features and means are scaled to length one before the
# distance is taken; the text does not say so, the published code does it.


# %%
def fecam(base, new, X, calibrate=False, gamma=100.0):
    """Return the negative distances of equation (5); the highest is the answer of (6)."""
    scores = []
    for mean, sigma in gaussians(base, new, calibrate):
        shrunk = sigma + gamma * np.eye(len(mean))
        deviations = np.sqrt(np.diag(shrunk))
        inverse = np.linalg.inv(shrunk / np.outer(deviations, deviations))  # N(Σ + γI)⁻¹
        difference = unit(X) - unit(mean)
        scores.append(-np.einsum("ij,jk,ik->i", difference, inverse, difference))
    return np.stack(scores, axis=1)


def c_fecam(base, new, X, gamma=100.0):
    """FeCAM with calibrated means and covariances."""
    return fecam(base, new, X, calibrate=True, gamma=gamma)


# %% [markdown]
# ## RanPAC: equation (7)
#
# Features go through a random projection W and a rectifier, into many more dimensions. There a ridge regression maps them
# to their class. W is drawn once and never changes. The published code divides each score by the lengths of its two
# vectors, a cosine; so do we. The linear score of the text loses the old classes as soon as new ones are sampled.


# %%
def random_features(X, W):
    """Return φ(f(x) W), with the rectifier as φ."""
    return np.maximum(X @ W, 0)


def ridge_weights(samples, W, lam):
    """Return (G + λI)⁻¹ c for each class, (classes, M)."""
    mapped = [random_features(rows, W) for rows in samples.values()]
    G = sum(h.T @ h for h in mapped)  # equation (9), both sums
    C = np.stack([h.sum(axis=0) for h in mapped], axis=1)
    return np.linalg.solve(G + lam * np.eye(len(G)), C).T


def ranpac(base, new, X, W, lam):
    """Return the scores of equation (7), as cosines."""
    return unit(random_features(X, W)) @ unit(ridge_weights({**base, **new}, W, lam)).T


def best_lambda(train, held_out, W, lambdas=tuple(10.0**k for k in range(-1, 9))):
    """Return the λ with which a part of the base session predicts the classes of the other part best.

    The text does not list the candidates; the published code has 10¹ to 10⁸.
    """
    wanted = np.eye(len(train)).repeat([len(held_out[c]) for c in train], axis=0)
    H = np.concatenate([random_features(held_out[c], W) for c in train])
    return min(lambdas, key=lambda lam: ((wanted - H @ ridge_weights(train, W, lam).T) ** 2).mean())


# %% [markdown]
# ## C-RanPAC: equations (8) and (9)
#
# G and c of a class with five samples are poor. So its Gaussian is calibrated, with a beta of 0.5, and 800 samples of it take
# the place of the five. Base classes keep their own samples: so the paper's method and its code; where the text gives the 800,
# it says "each class".


# %%
def calibrated_samples(base, new, rng, per_class=800):
    """Draw samples of each new class by equation (8)."""
    return {
        c: rng.multivariate_normal(*calibrated(rows, base, beta=0.5), size=per_class) for c, rows in new.items()
    }


def c_ranpac(base, new, X, W, lam, rng):
    """RanPAC on samples of the calibrated new classes."""
    return ranpac(base, calibrated_samples(base, new, rng), X, W, lam)


# %% [markdown]
# ## All six, side by side
#
# Ten base classes with fifty samples and five new ones with five, all of them Gaussian; each shares its shape with its
# neighbors. Accuracy on the old and on the new classes:

# %%
rng = np.random.default_rng(0)
means = rng.normal(size=(5, 24)).repeat(3, axis=0) + 0.5 * rng.normal(size=(15, 24))  # families of three
shapes = (rng.normal(size=(5, 24, 24)) * np.geomspace(1, 0.05, 24)).repeat(3, axis=0) / 2
order = [*range(0, 15, 3), *range(1, 15, 3), *range(2, 15, 3)]  # the last of each family is new


def draw(c, n):
    return means[c] + rng.normal(size=(n, 24)) @ shapes[c].T


base = {c: draw(c, 50) for c in order[:10]}
new = {c: draw(c, 5) for c in order[10:]}
asked = {c: draw(c, 100) for c in order}
X, truth = np.concatenate(list(asked.values())), np.repeat(np.arange(15), 100)
W = rng.normal(size=(24, 500))
lam = best_lambda({c: rows[10:] for c, rows in base.items()}, {c: rows[:10] for c, rows in base.items()}, W)

for name, scores in {
    "NCM": ncm(base, new, X),
    "TEEN": teen(base, new, X),
    "FeCAM": fecam(base, new, X, gamma=0.1),
    "C-FeCAM": c_fecam(base, new, X, gamma=0.1),
    "RanPAC": ranpac(base, new, X, W, lam),
    "C-RanPAC": c_ranpac(base, new, X, W, lam, rng),
}.items():
    right = scores.argmax(axis=1) == truth
    print(f"{name:9} old {right[truth < 10].mean():6.1%}   new {right[truth >= 10].mean():6.1%}")
